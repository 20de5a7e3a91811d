/** Light or dark: as the system is set, until the user chooses. */
import { effect, signal } from '@preact/signals';

const THEMES = ['system', 'light', 'dark'] as const;
export type Theme = (typeof THEMES)[number];

const STORED = 'torpor.theme';
const darkSystem = matchMedia('(prefers-color-scheme: dark)');

const stored = localStorage.getItem(STORED);
export const theme = signal<Theme>(THEMES.find((one) => one === stored) ?? 'system');
export const isDark = signal(false);

export function followTheme(): void {
  const apply = () => {
    isDark.value = theme.value === 'dark' || (theme.value === 'system' && darkSystem.matches);
    document.documentElement.dataset['theme'] = isDark.value ? 'dark' : 'light';
  };
  darkSystem.addEventListener('change', apply);
  effect(() => {
    localStorage.setItem(STORED, theme.value);
    apply();
  });
}

export function nextTheme(): void {
  theme.value = THEMES[(THEMES.indexOf(theme.value) + 1) % THEMES.length] ?? 'system';
}
