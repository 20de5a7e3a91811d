/** nginx in place of the gateway, in a usual configuration: keep-alive connections and WebSockets. */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { commandOnPath } from '../../scripts/setup/command-on-path.mjs';
import { canConnect, freePort } from './ports.ts';
import type { Target } from './target.ts';

export async function startNginx(
  app: Target,
): Promise<{ readonly target: Target; stop(): Promise<void> } | undefined> {
  const program = commandOnPath('nginx', `${process.env['PATH']}:/usr/sbin`);
  if (program === undefined) return undefined;
  const directory = await mkdtemp(join(tmpdir(), 'torpor-nginx-'));
  const port = await freePort();
  const config = join(directory, 'nginx.conf');
  await writeFile(config, configOf(directory, port, app));
  const child = spawn(program, ['-c', config, '-p', directory, '-e', join(directory, 'error.log')], {
    stdio: 'ignore',
  });
  while (!(await canConnect(port))) await delay(50);
  return {
    target: { name: 'nginx', address: '127.0.0.1', port, host: '127.0.0.1' },
    stop: async () => {
      child.kill('SIGTERM');
      await once(child, 'exit');
      await rm(directory, { recursive: true });
    },
  };
}

/** One worker, because the gateway has one thread too. */
function configOf(directory: string, port: number, app: Target): string {
  return `
    worker_processes 1;
    daemon off;
    pid ${directory}/pid;
    events { worker_connections 4096; }
    http {
      access_log off;
      client_body_temp_path ${directory}/body;
      proxy_temp_path ${directory}/proxy;
      fastcgi_temp_path ${directory}/fastcgi;
      uwsgi_temp_path ${directory}/uwsgi;
      scgi_temp_path ${directory}/scgi;
      map $http_upgrade $connection_word { default upgrade; '' ''; }
      upstream app { server ${app.address}:${app.port}; keepalive 64; }
      server {
        listen 127.0.0.1:${port};
        location / {
          proxy_pass http://app;
          proxy_http_version 1.1;
          proxy_buffering off;
          proxy_set_header Host $host;
          proxy_set_header X-Forwarded-For $remote_addr;
          proxy_set_header X-Forwarded-Proto $scheme;
          proxy_set_header Upgrade $http_upgrade;
          proxy_set_header Connection $connection_word;
        }
      }
    }
  `;
}
