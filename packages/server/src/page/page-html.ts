/** The one HTML document of the page, and the headers that protect it. */
import type { PageFiles } from '@torpor/dashboard';

export interface PageDocument {
  /** Allows the styles that the terminal makes at run time, for this answer alone. */
  readonly nonce: string;
  /** Where previews live, which the page may show in a frame: `http://*.sbx.localhost:7676`. */
  readonly previews: string | undefined;
}

export function pageHtml({ script, style, icon }: PageFiles, { nonce }: PageDocument): string {
  return `<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>Torpor</title>
<link rel="icon" href="/page/${icon}" type="image/svg+xml">
<link rel="stylesheet" href="/page/${style}" nonce="${nonce}">
<script type="module" src="/page/${script}"></script>
</head>
<body><div id="app"></div><noscript><p class="lone">This page needs JavaScript. The command line can do the same: <code>npx torpor --help</code>.</p></noscript></body>
</html>
`;
}

/** The page when its files could not be built: it says why, and what works without it. */
export function brokenPageHtml(why: string): string {
  const shown = why.replace(/[&<>"]/g, (character) => `&#${character.charCodeAt(0)};`);
  return `<!doctype html>
<html lang="en"><meta charset="utf-8"><title>Torpor</title>
<h1>The page could not be built</h1>
<p>The server itself works: the API and the command line (<code>npx torpor --help</code>) do everything that the page does.</p>
<pre>${shown}</pre>
<p>Run <code>npm ci</code> in the directory of Torpor, then reload.</p>
</html>
`;
}

export function pageHeaders({ nonce, previews }: PageDocument): Record<string, string> {
  const policy = [
    "default-src 'none'",
    "script-src 'self'",
    `style-src 'self' 'nonce-${nonce}'`,
    "img-src 'self' data: blob:",
    "connect-src 'self'",
    `frame-src ${previews ?? "'none'"}`,
    "frame-ancestors 'none'",
    "base-uri 'none'",
    "form-action 'none'",
  ];
  return {
    'content-security-policy': policy.join('; '),
    // A preview that the page opens, or that opens the page, gets no handle on its window.
    'cross-origin-opener-policy': 'same-origin',
    'cross-origin-resource-policy': 'same-origin',
    'referrer-policy': 'no-referrer',
    'x-content-type-options': 'nosniff',
    'x-frame-options': 'DENY',
    'permissions-policy': 'camera=(), microphone=(), geolocation=()',
  };
}
