/** Scrolls the current link of a navigation into sight, where the navigation is longer than the screen is wide. */
export function showCurrent(nav: HTMLElement | null): void {
  const current = nav?.querySelector<HTMLElement>('[aria-current]');
  if (nav == null || current == null || nav.scrollWidth <= nav.clientWidth) return;
  nav.scrollLeft = current.offsetLeft - (nav.clientWidth - current.offsetWidth) / 2;
}
