/** Pages for people: one design, no external resources, light and dark. */
import { createHash } from 'node:crypto';

export interface Page {
  readonly title: string;
  /** What is wrong, in one sentence. */
  readonly message: string;
  /** What the reader can do about it. */
  readonly hint?: string | undefined;
  /** Present when the page polls this path, and reloads when the sandbox is ready. */
  readonly waitsFor?: { readonly statusPath: string };
  /** Links to other ports. */
  readonly links?: readonly { readonly text: string; readonly href: string }[];
  readonly requestId: string;
}

const STYLE = `
:root{color-scheme:light dark;--ground:#f4f5fa;--card:#fff;--ink:#1d2033;--soft:#626884;--line:#e3e6f0;--moon:#5b63d3;--glow:#5b63d322}
@media(prefers-color-scheme:dark){:root{--ground:#0f111c;--card:#181b2a;--ink:#eceefa;--soft:#9aa1c0;--line:#272b40;--moon:#aab1ff;--glow:#aab1ff1f}}
*{box-sizing:border-box;margin:0}
body{min-height:100vh;min-height:100dvh;display:grid;place-items:center;padding:24px;background:var(--ground);color:var(--ink);font:16px/1.55 system-ui,-apple-system,"Segoe UI",Roboto,sans-serif}
main{width:min(440px,100%);padding:40px 36px 30px;background:var(--card);border:1px solid var(--line);border-radius:20px;text-align:center;box-shadow:0 1px 2px #0000000a,0 18px 48px -24px #00000033}
svg{width:72px;height:72px;border-radius:50%;color:var(--moon);background:var(--glow);padding:18px}
h1{margin:22px 0 8px;font-size:22px;line-height:1.25;font-weight:650;letter-spacing:-.01em}
p{color:var(--soft);text-wrap:balance}
p+p{margin-top:8px}
.links{display:flex;flex-wrap:wrap;gap:8px;justify-content:center;margin-top:20px}
a,button{padding:8px 16px;border:1px solid var(--line);border-radius:999px;background:none;color:var(--moon);font:inherit;font-size:15px;text-decoration:none;cursor:pointer}
a:hover,button:hover{background:var(--glow)}
a:focus-visible,button:focus-visible{outline:2px solid var(--moon);outline-offset:2px}
.bar{height:3px;margin:26px auto 0;width:160px;border-radius:3px;background:var(--line);overflow:hidden}
.bar i{display:block;width:40%;height:100%;border-radius:3px;background:var(--moon);animation:slide 1.4s ease-in-out infinite}
footer{margin-top:26px;color:var(--soft);font-size:12px;opacity:.75;overflow-wrap:anywhere}
[hidden]{display:none!important}
.waits svg{animation:breathe 3.2s ease-in-out infinite}
@keyframes breathe{50%{transform:scale(1.06);background:transparent}}
@keyframes slide{0%{transform:translateX(-100%)}100%{transform:translateX(250%)}}
@media(prefers-reduced-motion:reduce){svg,.bar i{animation:none!important}.bar i{width:100%;opacity:.5}}
`;

const MOON =
  '<svg viewBox="0 0 24 24" fill="none" stroke="currentColor" stroke-width="1.8" stroke-linecap="round" stroke-linejoin="round" aria-hidden="true"><path d="M20.5 14.2A8.5 8.5 0 1 1 9.8 3.5a6.8 6.8 0 0 0 10.7 10.7Z"/><path d="M15 3.5h4l-4 4.5h4"/></svg>';

/** Polls the status, and reloads the page once, when the sandbox is ready. */
const SCRIPT = `
(()=>{const main=document.querySelector('main'),ask=main.dataset.status;if(!ask)return;
const say=(q,t)=>{const e=document.querySelector(q);if(t&&e.textContent!==t)e.textContent=t};
const stop=()=>{main.classList.remove('waits');document.querySelector('.bar').hidden=true;const b=document.querySelector('button');b.parentElement.hidden=false;b.onclick=()=>location.reload()};
let wait=250,missed=0;
const look=async()=>{try{const r=await fetch(ask,{cache:'no-store',headers:{accept:'application/json'}});const s=await r.json();missed=0;
say('h1',s.title);say('#message',s.message);document.title=s.title||document.title;
if(s.ready)return location.reload();if(s.over)return stop()}catch{if(++missed>40)return stop()}
wait=Math.min(wait*1.25,1500);setTimeout(look,wait)};
setTimeout(look,wait)})();
`;

const hash = (text: string) => `'sha256-${createHash('sha256').update(text).digest('base64')}'`;

/** The page may use only its own style and script, and send requests only to its own host. */
export const PAGE_POLICY = [
  "default-src 'none'",
  `style-src ${hash(STYLE)}`,
  `script-src ${hash(SCRIPT)}`,
  "connect-src 'self'",
  'img-src data:',
  "base-uri 'none'",
  "form-action 'none'",
].join('; ');

export function renderPage({ title, message, hint, waitsFor, links = [], requestId }: Page): string {
  const waits = waitsFor !== undefined;
  const attributes = waits ? ` class="waits" data-status="${escapeHtml(waitsFor.statusPath)}"` : '';
  const anchors = links
    .map(({ text, href }) => `<a href="${escapeHtml(href)}">${escapeHtml(text)}</a>`)
    .join('');
  return `<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="robots" content="noindex">
<link rel="icon" href="data:,">
${waits ? '<noscript><meta http-equiv="refresh" content="3"></noscript>' : ''}
<title>${escapeHtml(title)}</title>
<style>${STYLE}</style>
</head>
<body>
<main${attributes}>
${MOON}
<h1 aria-live="polite">${escapeHtml(title)}</h1>
<p id="message">${escapeHtml(message)}</p>
${hint === undefined ? '' : `<p>${escapeHtml(hint)}</p>`}
${anchors === '' ? '' : `<div class="links">${anchors}</div>`}
${waits ? '<div class="bar" role="progressbar" aria-label="waiting"><i></i></div>' : ''}
<div class="links" hidden><button type="button">Try again</button></div>
<footer>Torpor · ${escapeHtml(requestId)}</footer>
</main>
<script>${SCRIPT}</script>
</body>
</html>
`;
}

function escapeHtml(text: string): string {
  return text.replace(/[&<>"']/g, (character) => `&#${character.charCodeAt(0)};`);
}
