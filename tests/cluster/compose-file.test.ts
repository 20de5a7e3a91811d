/** The compose file of docs/many-machines.md: every flag and variable in it is one that the server reads. */
import { mkdtemp, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { loadAllYaml } from '@torpor/pods/testing';
import { readConfig } from '@torpor/server';
import { expect, it } from 'vitest';

const ROOT = join(import.meta.dirname, '../..');

interface Service {
  readonly command: string;
  readonly environment: Readonly<Record<string, string>>;
  readonly ports: readonly string[];
  readonly volumes: readonly string[];
  readonly depends_on: object;
}

interface ComposeFile {
  readonly services: Readonly<Record<'postgres' | 'a' | 'b', Service>>;
  readonly volumes: object;
}

async function composeFile(): Promise<ComposeFile> {
  const page = await readFile(join(ROOT, 'docs/many-machines.md'), 'utf8');
  const [, text = ''] = /```yaml\n(# compose\.yaml.*?)```/s.exec(page) ?? [];
  // The parser of Kubernetes does not merge mappings (`<<`), so this does.
  const merged = (value: unknown): unknown => {
    if (Array.isArray(value)) return value.map(merged);
    if (typeof value !== 'object' || value === null) return value;
    const { '<<': inherited = {}, ...own } = value as Record<string, unknown>;
    const entries = Object.entries({ ...(inherited as object), ...own });
    return Object.fromEntries(entries.map(([name, one]) => [name, merged(one)]));
  };
  return merged(loadAllYaml(text)[0]) as ComposeFile;
}

it('the compose file of the docs starts two nodes on one database and one store', async () => {
  const { services, volumes } = await composeFile();
  const directory = await mkdtemp(join(tmpdir(), 'torpor-compose-'));
  try {
    for (const name of ['a', 'b'] as const) {
      const { command, environment, ports, volumes: mounted, depends_on: needed } = services[name];
      const [verb, ...flags] = command.split(' ');
      expect(verb).toBe('up');
      const given = { TORPOR_API_KEY: 'a'.repeat(64), TORPOR_CLUSTER_SECRET: 'c'.repeat(40) };
      const config = await readConfig(flags, { ...environment, ...given }, directory);
      expect(config).toMatchObject({
        node: name,
        advertise: `http://${name}:${config.port}`,
        allowedHosts: expect.arrayContaining([name]),
        runtime: ['process'],
        store: 'file:///store',
        drainOnStop: true,
      });
      // A variable that the server does not read changes nothing.
      for (const variable of Object.keys(environment).filter((one) => !(one in given))) {
        const { [variable]: _, ...others } = environment;
        const without = await readConfig(flags, { ...others, ...given }, directory).catch(() => undefined);
        expect(without, variable).not.toEqual(config);
      }
      expect(ports.map((port) => port.split(':')[1])).toEqual([String(config.port)]);
      expect(mounted).toContain('store:/store');
      expect(Object.keys(volumes)).toEqual(
        expect.arrayContaining(mounted.map((volume) => volume.split(':')[0])),
      );
      expect(Object.keys(services)).toEqual(expect.arrayContaining(Object.keys(needed)));
    }
    expect(services.a.environment['TORPOR_DATABASE_URL']).toBe(services.b.environment['TORPOR_DATABASE_URL']);
  } finally {
    await rm(directory, { recursive: true });
  }
});
