import { expect, it } from 'vitest';
import { expand, expandList, expandText } from './expand.ts';

const lookUp = (name: string) => ({ A: 'one', EMPTY: '' })[name];

it.each([
  [`$A/\${A}x`, 'one/onex'],
  ['$MISSING.', '.'],
  [`\${MISSING:-d}\${EMPTY:-e}\${A:-f}`, 'deone'],
  [`\${A:+set}\${MISSING:+set}`, 'set'],
  [`\${MISSING:-$A}`, 'one'],
  [`'$A' "$A" \\$A`, '$A one $A'],
  ['a"b c"d', 'ab cd'],
])('%s becomes %s', (text, expected) => {
  expect(expand(text, lookUp)).toBe(expected);
});

it('a list is split at spaces outside quotes', () => {
  expect(expandList(`a  "b c" $A'd e' `, lookUp)).toEqual(['a', 'b c', 'oned e']);
});

it('a text keeps its quotes and lines', () => {
  expect(expandText(`"$A" '\${MISSING:-d}'\n\\$A \\n $ 5`, lookUp)).toBe(`"one" 'd'\n$A \\n $ 5`);
});
