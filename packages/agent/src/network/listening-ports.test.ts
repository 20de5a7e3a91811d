import { describe, expect, it } from 'vitest';
import { parseStat } from '../processes/sandbox-processes.ts';
import { parseListening } from './listening-ports.ts';

const HEAD =
  '  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n';
const row = (local: string, state: string, inode: number) =>
  `   0: ${local} 00000000:0000 ${state} 00000000:00000000 00:00000000 00000000     0        0 ${inode} 1 0 100 0 0 10 0\n`;

describe('the table of TCP sockets', () => {
  it('yields listening sockets and no connections', () => {
    const table = HEAD + row('0100007F:0BB8', '0A', 11) + row('0100007F:0BB9', '01', 12);
    expect(parseListening(table)).toEqual([{ address: '127.0.0.1', port: 3000, inode: '11' }]);
  });

  it.each([
    ['00000000000000000000000000000000', '::'],
    ['00000000000000000000000001000000', '::1'],
    ['0000000000000000FFFF00000100007F', '127.0.0.1'],
    ['B80D0120000000000000000001000000', '2001:db8::1'],
  ])('yields the address %s in the usual notation', (hex, expected) => {
    expect(parseListening(HEAD + row(`${hex}:0050`, '0A', 1))).toEqual([
      { address: expected, port: 80, inode: '1' },
    ]);
  });

  it('may be missing', () => {
    expect(parseListening('')).toEqual([]);
  });
});

describe('the stat of a process', () => {
  it('is read after a name that contains parentheses', () => {
    const fields = ['S', '7', ...Array.from({ length: 30 }, (_, index) => String(index + 5))];
    const stat = parseStat(`42 (evil) S 1 (name) ${fields.join(' ')}`);
    expect(stat).toMatchObject({ name: 'evil) S 1 (name', parent: 7 });
  });

  it('is undefined when the process is gone', () => {
    expect(parseStat('')).toBeUndefined();
  });
});
