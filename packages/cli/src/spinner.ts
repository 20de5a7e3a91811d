/** Shows that something is under way: on a terminal, on stderr, and gone without a trace when it is done. */
import type { Io } from './io.ts';

const FRAMES = ['⠋', '⠙', '⠹', '⠸', '⠼', '⠴', '⠦', '⠧', '⠇', '⠏'];
const FRAME_MS = 80;
/** What is quicker than this needs no progress, only flickers. */
const DELAY_MS = 150;
const CLEAR_LINE = '\r\u001b[K';

export async function withSpinner<T>(
  { stderr, errorColors }: Io,
  words: string,
  work: Promise<T>,
): Promise<T> {
  if (!stderr.isTTY) return work;
  let frame = 0;
  let shown = false;
  const draw = () => {
    shown = true;
    stderr.write(`${CLEAR_LINE}${errorColors.cyan(FRAMES[frame++ % FRAMES.length] ?? '')} ${words}`);
  };
  let timer = setTimeout(() => {
    draw();
    timer = setInterval(draw, FRAME_MS);
  }, DELAY_MS);
  try {
    return await work;
  } finally {
    clearTimeout(timer);
    if (shown) stderr.write(CLEAR_LINE);
  }
}
