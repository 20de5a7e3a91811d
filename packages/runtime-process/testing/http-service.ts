/** A real HTTP server as a declared service, and its client. */
import { request } from 'node:http';
import type { Address, Instance, Runtime } from '@torpor/engine';
import { unhurried } from '@torpor/engine/testing';
import type { Service } from '@torpor/protocol';

/** Answers with its pid and the number of lines in its file, one for each start. */
const SCRIPT = `
  const fs = require("fs"), http = require("http");
  fs.appendFileSync("starts", process.pid + "\\\\n");
  process.on("SIGTERM", () => {});
  http.createServer((request, response) => {
    if (request.url === "/broken") response.statusCode = 500;
    response.end(JSON.stringify({ pid: process.pid, starts: fs.readFileSync("starts", "utf8").trim().split("\\\\n").length }));
  }).listen(process.env.PORT, "127.0.0.1");
`;

export function httpService(more: Partial<Service> = {}): Service {
  const script = SCRIPT.replaceAll('\n', ' ').replaceAll('\\\\n', '\\n');
  return { name: 'web', command: `exec '${process.execPath}' -e '${script}'`, port: 3000, ...more };
}

export interface Page {
  readonly pid: number;
  readonly starts: number;
}

export async function pageOf(runtime: Runtime, instance: Instance, port: number): Promise<Page> {
  const address = await runtime.dial(instance, port, unhurried);
  if (address === null) throw new Error(`Nobody of the sandbox listens on ${port}.`);
  return JSON.parse(await get(address)) as Page;
}

function get(address: Address): Promise<string> {
  return new Promise((resolve, reject) => {
    const asked = request({ ...address, agent: false }, (response) => {
      let text = '';
      response.setEncoding('utf8').on('data', (chunk: string) => {
        text += chunk;
      });
      response.on('end', () => resolve(text));
    });
    asked.on('error', reject);
    asked.end();
  });
}
