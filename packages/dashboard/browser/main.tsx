/** The page: starts the session and draws the frame. Everything else is loaded by the view that needs it. */
import './styles/base.css';
import './styles/controls.css';
import './styles/shell.css';
import './styles/sandboxes.css';
import './styles/sandbox.css';
import './styles/overview.css';
import './styles/more.css';
import '@xterm/xterm/css/xterm.css';
import { render } from 'preact';
import { followWhileSignedIn } from './live/follow.ts';
import { App } from './shell/app.tsx';
import { startSession } from './shell/session.ts';
import { followTheme } from './shell/theme.ts';

followTheme();
followWhileSignedIn();
void startSession();
const root = document.getElementById('app');
if (root !== null) render(<App />, root);
