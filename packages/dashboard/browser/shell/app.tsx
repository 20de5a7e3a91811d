/** The frame of the page: sign-in, or navigation and the view that the address names. */
import { useEffect, useRef } from 'preact/hooks';
import { connection } from '../live/connection.ts';
import { BrandMark } from '../ui/brand.tsx';
import { Confirmation } from '../ui/confirm.tsx';
import { FaultNotice } from '../ui/fault.tsx';
import { showCurrent } from '../ui/show-current.ts';
import { Toasts } from '../ui/toasts.tsx';
import { clockTime } from '../ui/units.ts';
import { followKeys, isHelpOpen, KeyboardHelp } from './keyboard-help.tsx';
import { href, route } from './router.ts';
import { SECTIONS, sectionOf } from './sections.tsx';
import { identity, session, signOut, startSession } from './session.ts';
import { SignIn } from './sign-in.tsx';
import { nextTheme, theme } from './theme.ts';

export function App() {
  switch (session.value.mode) {
    case 'starting':
      return null;
    case 'signed out':
      return <SignIn />;
    case 'unreachable':
      return (
        <main class="sign-in">
          <div class="card">
            <div class="brand">
              <BrandMark />
              <h1>Torpor</h1>
            </div>
            <FaultNotice error={session.value.error} retry={() => void startSession()} />
          </div>
        </main>
      );
    case 'signed in':
      return <Shell />;
  }
}

function Shell() {
  const section = sectionOf(route.value);
  const nav = useRef<HTMLElement>(null);
  useEffect(followKeys, []);
  // On a phone the sections are in one line that scrolls.
  useEffect(() => showCurrent(nav.current), [section.path]);
  document.title = `${section.title} · Torpor`;
  const View = section.view;
  return (
    <div class="shell">
      <button type="button" class="button skip" onClick={() => document.getElementById('content')?.focus()}>
        Skip to the content
      </button>
      <nav ref={nav} class="nav" aria-label="Sections">
        <a class="brand" href={href()}>
          <BrandMark />
          <span>Torpor</span>
        </a>
        {SECTIONS.map(({ path, title, shown }) =>
          shown?.(identity()) === false ? null : (
            <a
              key={title}
              class="nav-link"
              href={href(...(path === '' ? [] : [path]))}
              aria-current={section.path === path ? 'page' : undefined}
            >
              {title}
            </a>
          ),
        )}
        <div class="nav-foot">
          <Liveness />
          <span class="who quiet">
            {identity().org}
            {identity().operator ? ' · operator' : ''}
            {identity().readOnly ? ' · look only' : ''}
          </span>
          <button
            type="button"
            class="button small plain keyboard"
            onClick={() => {
              isHelpOpen.value = true;
            }}
          >
            Keyboard <kbd>?</kbd>
          </button>
          <button type="button" class="button small plain" onClick={nextTheme}>
            Theme: {theme.value}
          </button>
          <button type="button" class="button small plain" onClick={() => void signOut()}>
            Sign out
          </button>
        </div>
      </nav>
      <Banner />
      <main class="content" id="content" tabIndex={-1}>
        <View key={section.path} parts={route.value.parts.slice(1)} />
      </main>
      <Toasts />
      <Confirmation />
      <KeyboardHelp />
    </div>
  );
}

/** Whether what is shown follows the server, at a glance. */
function Liveness() {
  const { mode } = connection.value;
  return (
    <span class="liveness quiet">
      <span
        class={`dot ${mode === 'live' ? 'running' : mode === 'broken' ? 'bad' : 'changing'}`}
        aria-hidden="true"
      />
      {mode === 'live' ? 'live' : mode === 'broken' ? 'not connected' : 'connecting'}
    </span>
  );
}

/** Says when what the page shows may no longer be so. */
function Banner() {
  const { mode, since } = connection.value;
  if (mode !== 'broken') return <div />;
  return (
    <div class="banner" role="status">
      The server cannot be reached. What you see is from {clockTime(since)}; the page tries again by itself.
    </div>
  );
}
