/**
 * Builds the OpenTelemetry Collector of the test lab from Go modules by its own builder, once for all clones on a machine:
 * with the receiver of OTLP, and an exporter that writes what was received to a file as JSON.
 *
 * The program appears in its place only when it is complete. A lock keeps two processes from building at once.
 */
import { existsSync, mkdirSync, mkdtempSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { findGo } from '../../packages/runtime-gvisor/src/binaries/build.mjs';
import { downloadEnvironment, runBuild } from '../../packages/runtime-gvisor/src/machine-wide-build.mjs';
import { COLLECTOR_VERSION, collectorProgram } from '../../tests/traces/lab-program.mjs';

const CONTRIB = 'github.com/open-telemetry/opentelemetry-collector-contrib';

/**
 * Rejects with the reason when it cannot be built.
 * @param {(line: string) => void} say
 * @returns {Promise<string>}
 */
export async function buildCollector(say) {
  const program = collectorProgram();
  if (existsSync(program)) return program;
  const go = findGo(process.env['PATH'] ?? '');
  if (go === undefined) throw new Error('Go is not installed');
  const lab = dirname(dirname(program));
  mkdirSync(lab, { recursive: true, mode: 0o755 });
  const place = mkdtempSync(join(lab, '.building-'));
  try {
    const config = join(place, 'builder.json');
    // JSON is YAML.
    writeFileSync(config, JSON.stringify(manifest(join(place, 'made'))));
    const builder = `go.opentelemetry.io/collector/cmd/builder@${COLLECTOR_VERSION}`;
    say(`building the collector ${COLLECTOR_VERSION}`);
    await runBuild([go, 'run', builder, `--config=${config}`], {
      lock: join(lab, '.build.lock'),
      cwd: place,
      // The builder looks for Go itself.
      env: { ...withGo(go), GOFLAGS: '-buildvcs=false', CGO_ENABLED: '0' },
    });
    // Another process may have built it while this one waited for the lock.
    if (existsSync(program)) return program;
    mkdirSync(dirname(program), { recursive: true });
    renameSync(join(place, 'made/otelcol'), program);
    return program;
  } finally {
    rmSync(place, { recursive: true, force: true });
  }
}

/** @param {string} go */
function withGo(go) {
  const env = downloadEnvironment(/^GO/);
  return { ...env, PATH: `${dirname(go)}:${env['PATH'] ?? '/usr/bin:/bin'}` };
}

/** What the builder puts together. @param {string} directory */
function manifest(directory) {
  return {
    dist: { name: 'otelcol', output_path: directory },
    receivers: [{ gomod: `go.opentelemetry.io/collector/receiver/otlpreceiver ${COLLECTOR_VERSION}` }],
    exporters: [{ gomod: `${CONTRIB}/exporter/fileexporter ${COLLECTOR_VERSION}` }],
  };
}
