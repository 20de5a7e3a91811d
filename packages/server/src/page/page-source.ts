/** The files of the page. They are built when a browser asks for them first, and kept for all later requests. */
import { buildPage, type PageFiles } from '@torpor/dashboard';

export type PageSource = () => Promise<PageFiles>;

export function openPageSource(build: () => Promise<PageFiles> = buildPage): PageSource {
  let built: Promise<PageFiles> | undefined;
  return () => {
    built ??= build().catch((thrown: unknown) => {
      // The next request tries again: a full disk may have room by then.
      built = undefined;
      throw thrown;
    });
    return built;
  };
}
