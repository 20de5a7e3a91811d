/** Colours on a terminal, unless NO_COLOR is set. */
import pico from 'picocolors';

export type Colors = ReturnType<typeof pico.createColors>;

export function colorsFor(stream: { readonly isTTY?: boolean }, env: NodeJS.ProcessEnv): Colors {
  const wanted = env['FORCE_COLOR']
    ? env['FORCE_COLOR'] !== '0'
    : stream.isTTY === true && env['TERM'] !== 'dumb';
  return pico.createColors(wanted && !env['NO_COLOR']);
}
