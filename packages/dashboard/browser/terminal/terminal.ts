/**
 * xterm.js, connected with a shell in the sandbox. What the shell prints is untrusted: escape sequences may draw, but not
 * reach the clipboard, open links or answer for the user.
 */

import { type ProcessSocket, type SandboxId, TorporError } from '@torpor/sdk';
import { FitAddon } from '@xterm/addon-fit';
import { Terminal } from '@xterm/xterm';
import { torpor } from '../shell/session.ts';
import { isDark } from '../shell/theme.ts';

/** The shell has ended by itself, or the connection to it broke: the server or the sandbox stopped. */
export type TerminalEnd = 'ended' | 'broken';

/** Resolves when the terminal is of no more use. Rejects when it could not be opened. */
export async function openTerminal(
  box: HTMLElement,
  id: SandboxId,
  signal: AbortSignal,
): Promise<TerminalEnd> {
  const terminal = new Terminal({
    fontFamily: getComputedStyle(document.documentElement).getPropertyValue('--mono'),
    fontSize: 13,
    scrollback: 5_000,
    screenReaderMode: matchMedia('(forced-colors: active)').matches,
    theme: themeOf(isDark.value),
    // Links of the OSC 8 sequence would lead wherever the program says.
    linkHandler: { activate: () => {} },
  });
  const fit = new FitAddon();
  terminal.loadAddon(fit);
  withStyleNonce(() => terminal.open(box));
  const observer = new ResizeObserver(() => {
    // A hidden box has no size; the shell keeps its own until it is shown again.
    if (box.clientWidth > 0) fit.fit();
  });
  const unfollow = isDark.subscribe((dark) => {
    terminal.options.theme = themeOf(dark);
  });
  try {
    fit.fit();
    observer.observe(box);
    const { cols, rows } = terminal;
    const socket = await torpor().sandboxes.terminal(id, { cols, rows, wake: false, signal });
    return await connect(terminal, socket);
  } finally {
    observer.disconnect();
    unfollow();
    // The next shell draws into the same box.
    signal.addEventListener('abort', () => terminal.dispose());
    if (signal.aborted) terminal.dispose();
  }
}

async function connect(terminal: Terminal, socket: ProcessSocket): Promise<TerminalEnd> {
  let end: TerminalEnd = 'broken';
  const encoder = new TextEncoder();
  terminal.onData((text) => void socket.write(encoder.encode(text)));
  terminal.onBinary(
    (text) => void socket.write(Uint8Array.from(text, (character) => character.charCodeAt(0))),
  );
  terminal.onResize(({ cols, rows }) => socket.resize(cols, rows));
  terminal.focus();
  try {
    for await (const event of socket) {
      if (event.type === 'output') await new Promise<void>((done) => terminal.write(event.bytes, done));
      if (event.type !== 'exit') continue;
      end = 'ended';
      terminal.write(`\r\n\x1b[2m[the shell ended with code ${event.code}]\x1b[0m\r\n`);
    }
  } catch (error) {
    const message = error instanceof TorporError ? error.message : 'The connection broke.';
    terminal.write(`\r\n\x1b[2m[${message}]\x1b[0m\r\n`);
  } finally {
    terminal.options.disableStdin = true;
  }
  return end;
}

/** xterm.js makes style elements when it opens. The page's policy allows those that carry its nonce. */
function withStyleNonce(work: () => void): void {
  const nonce = document.querySelector<HTMLLinkElement>('link[rel=stylesheet][nonce]')?.nonce ?? '';
  const { createElement } = document;
  document.createElement = ((name: string, options?: ElementCreationOptions) => {
    const element = createElement.call(document, name, options);
    if (element instanceof HTMLStyleElement) element.nonce = nonce;
    return element;
  }) as typeof createElement;
  try {
    work();
  } finally {
    document.createElement = createElement;
  }
}

function themeOf(dark: boolean) {
  return dark
    ? { background: '#0b0f0f', foreground: '#dfe7e6', cursor: '#4db8ac', selectionBackground: '#2b4a47' }
    : {
        background: '#ffffff',
        foreground: '#16201f',
        cursor: '#0f6b68',
        selectionBackground: '#cfe6e3',
        black: '#16201f',
        red: '#a8201a',
        green: '#2c6e2f',
        yellow: '#7a5a00',
        blue: '#1f4f9c',
        magenta: '#7c2d8a',
        cyan: '#0f6b68',
        white: '#55615f',
        brightBlack: '#55615f',
        brightRed: '#b3261e',
        brightGreen: '#2f7d32',
        brightYellow: '#8a5200',
        brightBlue: '#2a62bd',
        brightMagenta: '#8e3a9d',
        brightCyan: '#0c7a76',
        brightWhite: '#16201f',
      };
}
