/** Shows a spinner on stderr while work is in progress, only on a terminal, and clears it at the end. */
import type { Io } from './io.ts';

const FRAMES = ['⠋', '⠙', '⠹', '⠸', '⠼', '⠴', '⠦', '⠧', '⠇', '⠏'];
const FRAME_MS = 80;
/** Shorter work shows no spinner, because it would only flicker. */
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
