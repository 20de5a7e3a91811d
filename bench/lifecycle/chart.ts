/** One chart of a wake for the README: bars on a logarithmic scale, with whose figure each is. */
import type { Anchor } from './anchors.ts';

export interface Bar {
  readonly what: string;
  readonly ms: number;
  readonly kind: 'measured here' | Anchor['kind'];
}

const [WIDTH, LEFT, RIGHT, TOP, ROW] = [760, 300, 90, 56, 30];
const COLORS = { 'measured here': '#2563eb', claimed: '#cbd5e1', 'measured by others': '#94a3b8' } as const;
const [SHORTEST, LONGEST] = [5, 5_000];

/** An SVG that is readable on a light and on a dark page. */
export function wakeChart(bars: readonly Bar[]): string {
  const sorted = bars.toSorted((a, b) => a.ms - b.ms);
  const height = TOP + sorted.length * ROW + 40;
  const title = 'From a request to a paused sandbox to the first byte of its answer (logarithmic)';
  return [
    `<svg xmlns="http://www.w3.org/2000/svg" width="${WIDTH}" height="${height}" viewBox="0 0 ${WIDTH} ${height}" role="img" aria-label="${title}" font-family="system-ui, sans-serif" font-size="13">`,
    `<rect width="${WIDTH}" height="${height}" rx="8" fill="#ffffff"/>`,
    `<text x="20" y="30" font-size="16" font-weight="600" fill="#0f172a">${title}</text>`,
    ...sorted.map(drawBar),
    ...legend(height - 16),
    '</svg>',
    '',
  ].join('\n');
}

function drawBar({ what, ms, kind }: Bar, index: number): string {
  const y = TOP + index * ROW;
  const width = Math.max(2, Math.round(lengthOf(ms)));
  const label = ms < 1_000 ? `${Math.round(ms)} ms` : `${(ms / 1_000).toFixed(1)} s`;
  return (
    `<text x="${LEFT - 12}" y="${y + 15}" text-anchor="end" fill="#0f172a">${escapeXml(what)}</text>` +
    `<rect x="${LEFT}" y="${y}" width="${width}" height="20" rx="3" fill="${COLORS[kind]}"/>` +
    `<text x="${LEFT + width + 8}" y="${y + 15}" fill="#475569">${label}</text>`
  );
}

function lengthOf(ms: number): number {
  const share = Math.log(ms / SHORTEST) / Math.log(LONGEST / SHORTEST);
  return Math.min(1, Math.max(0, share)) * (WIDTH - LEFT - RIGHT);
}

function legend(y: number): string[] {
  return Object.entries(COLORS).map(([kind, color], index) => {
    const x = LEFT + index * 130;
    return `<rect x="${x}" y="${y - 10}" width="12" height="12" rx="2" fill="${color}"/><text x="${x + 18}" y="${y}" fill="#475569" font-size="12">${kind}</text>`;
  });
}

function escapeXml(text: string): string {
  return text.replaceAll('&', '&amp;').replaceAll('<', '&lt;');
}
