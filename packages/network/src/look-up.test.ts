import { createSocket, type Socket } from 'node:dgram';
import { once } from 'node:events';
import { mkdtemp, rm, utimes, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { ManualClock } from '@torpor/engine/testing';
import { type Answer, decode, encode } from 'dns-packet';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { RCODES, type Rcode } from './dns-message.ts';
import { HostLookUp, parseNameServers } from './look-up.ts';

describe('a lookup at the host’s name servers', () => {
  const clock = new ManualClock();
  const servers: Socket[] = [];
  let directory: string;
  beforeEach(async () => {
    directory = await mkdtemp(join(tmpdir(), 'torpor-names-'));
  });
  afterEach(async () => {
    for (const server of servers.splice(0)) server.close();
    await rm(directory, { recursive: true });
  });

  /** A name server that gives the same answer to every question. */
  async function nameServer(rcode: Rcode, answer: (name: string) => Answer[]): Promise<string> {
    const server = createSocket('udp4').bind(0, '127.0.0.1');
    servers.push(server);
    await once(server, 'listening');
    server.on('message', (bytes, { port, address }) => {
      const { id, questions = [] } = decode(bytes);
      const answers = questions.flatMap(({ name }) => answer(name));
      server.send(
        encode({ type: 'response', id: id ?? 0, flags: RCODES[rcode], questions, answers }),
        port,
        address,
      );
    });
    return `127.0.0.1:${server.address().port}`;
  }
  const files = () => ({
    configuration: join(directory, 'resolv.conf'),
    behindStub: join(directory, 'behind.conf'),
  });
  const saying = async (server: string) => {
    await writeFile(files().configuration, `nameserver ${server}\n`);
    return new HostLookUp(clock, files());
  };
  const address = (name: string): Answer[] => [{ name, type: 'A', ttl: 77, data: '198.51.100.7' }];

  it('returns addresses with their TTL, also for names in the host’s files', async () => {
    const lookUp = await saying(await nameServer('NOERROR', address));
    const found = { is: 'found', records: [{ address: '198.51.100.7', ttl: 77 }] };
    expect(await lookUp.addresses('a.example')).toEqual(found);
    expect(await lookUp.addresses('localhost')).toEqual(found);
  });

  it('distinguishes a missing name, a name without addresses and no answer', async () => {
    expect(await (await saying(await nameServer('NXDOMAIN', () => []))).addresses('a.example')).toEqual({
      is: 'unknown',
    });
    expect(await (await saying(await nameServer('NOERROR', () => []))).addresses('a.example')).toEqual({
      is: 'found',
      records: [],
    });
    expect(await (await saying(await nameServer('SERVFAIL', () => []))).addresses('a.example')).toEqual({
      is: 'failed',
    });
  });

  it('uses the present name servers', async () => {
    const lookUp = await saying(await nameServer('NXDOMAIN', () => []));
    expect(await lookUp.addresses('a.example')).toEqual({ is: 'unknown' });
    await writeFile(files().configuration, `nameserver ${await nameServer('NOERROR', address)}\n`);
    await utimes(files().configuration, 1, 1);
    clock.advance(60_000);
    expect(await lookUp.addresses('a.example')).toMatchObject({ is: 'found', records: [{ ttl: 77 }] });
  });

  it('uses the upstream servers of the stub resolver, which answers from the host’s files', async () => {
    await writeFile(files().behindStub, `nameserver ${await nameServer('NOERROR', address)}\n`);
    const lookUp = await saying('127.0.0.53');
    expect(await lookUp.addresses('a.example')).toMatchObject({ is: 'found', records: [{ ttl: 77 }] });
  });

  it('reads the servers from the configuration', () => {
    const text =
      '# nameserver 1.1.1.1\nsearch lan\nnameserver 198.51.100.53\n  nameserver\t2001:db8::53 # second\noptions rotate\n';
    expect(parseNameServers(text)).toEqual(['198.51.100.53', '2001:db8::53']);
  });
});
