/** A registry of npm packages for one test: every package that is installed in the repository, in its exact version. */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync } from 'node:fs';
import { readdir, readFile } from 'node:fs/promises';
import { createServer, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { join } from 'node:path';
import { pipeline } from 'node:stream/promises';

interface InstalledPackage {
  readonly directory: string;
  readonly manifest: Readonly<Record<string, unknown>> & { readonly name: string; readonly version: string };
}

export interface LocalRegistry {
  readonly url: string;
  /** The names and versions of the packages that were fetched. */
  readonly fetched: string[];
  close(): Promise<void>;
}

/** `more`: directories of further packages. */
export async function localRegistry(nodeModules: string, ...more: string[]): Promise<LocalRegistry> {
  const packages = [...(await installedIn(nodeModules)), ...(await Promise.all(more.map(packageIn)))];
  const fetched: string[] = [];
  const server = createServer((request, response) => {
    const path = decodeURIComponent(new URL(request.url ?? '/', 'http://localhost').pathname.slice(1));
    const [name = '', version] = path.split('/-/');
    const found = packages.filter(({ manifest }) => manifest.name === name);
    if (found.length === 0) return void response.writeHead(404).end('{}');
    if (version === undefined)
      return void response
        .writeHead(200, { 'content-type': 'application/json' })
        .end(JSON.stringify(packument(url, name, found)));
    const wanted = found.find(({ manifest }) => manifest.version === version);
    if (wanted === undefined) return void response.writeHead(404).end();
    fetched.push(`${name}@${version}`);
    sendTarball(wanted, response).catch(() => response.destroy());
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  return {
    url,
    fetched,
    close: async () => {
      server.closeAllConnections();
      server.close();
      await once(server, 'close');
    },
  };
}

/** Also those below the `node_modules` of another package. */
async function installedIn(nodeModules: string): Promise<InstalledPackage[]> {
  const names = await readdir(nodeModules).catch(() => []);
  const found: InstalledPackage[] = [];
  for (const name of names.filter((one) => !one.startsWith('.'))) {
    const directory = join(nodeModules, name);
    if (name.startsWith('@')) {
      // The packages of the workspace are links; they are not published.
      if (name !== '@torpor') found.push(...(await installedIn(directory)));
      continue;
    }
    if (!existsSync(join(directory, 'package.json'))) continue;
    found.push(await packageIn(directory), ...(await installedIn(join(directory, 'node_modules'))));
  }
  return found;
}

async function packageIn(directory: string): Promise<InstalledPackage> {
  const text = await readFile(join(directory, 'package.json'), 'utf8');
  return { directory, manifest: JSON.parse(text) as InstalledPackage['manifest'] };
}

function packument(url: string, name: string, found: readonly InstalledPackage[]): object {
  const versions = found.map(({ manifest }) => {
    const dist = { tarball: `${url}/${name}/-/${manifest.version}` };
    return [manifest.version, { ...manifest, dist, hasInstallScript: 'preinstall' in scriptsOf(manifest) }];
  });
  const latest = found[0]?.manifest.version;
  return { name, 'dist-tags': { latest }, versions: Object.fromEntries(versions) };
}

function scriptsOf({ scripts }: InstalledPackage['manifest']): object {
  return typeof scripts === 'object' && scripts !== null ? scripts : {};
}

async function sendTarball({ directory }: InstalledPackage, response: ServerResponse): Promise<void> {
  const args = ['--exclude=./node_modules', '--transform=s,^\\.,package,', '-C', directory, '-cf', '-', '.'];
  const tar = spawn('tar', ['--use-compress-program=gzip -1', ...args], {
    stdio: ['ignore', 'pipe', 'ignore'],
  });
  response.writeHead(200, { 'content-type': 'application/octet-stream' });
  await pipeline(tar.stdout, response);
}
