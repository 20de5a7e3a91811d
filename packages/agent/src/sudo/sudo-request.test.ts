import { describe, expect, it } from 'vitest';
import type { User } from '../identity/users.ts';
import { type Command, parseSudo } from './arguments.ts';
import { launchSpec, parseSudoRequest } from './sudo-request.ts';

const caller: User = { name: 'user', uid: 1000, gid: 1000, home: '/home/user', shell: '/bin/bash' };
const root: User = { name: 'root', uid: 0, gid: 0, home: '/root', shell: '/bin/zsh' };

function launch(args: string[], env: Record<string, string> = {}) {
  const asked = parseSudo(args) as { readonly command: Command };
  return launchSpec({
    request: { command: asked.command, directory: '/home/user/project', env, pid: 7, terminal: null },
    caller,
    target: root,
    agentEnv: { PATH: '/safe', LANG: 'C.UTF-8', SECRET: 'of the agent' },
    sandboxId: 'sbx_1',
  });
}

describe('the environment of a command', () => {
  it('is the target user’s, with the SUDO variables and nothing else of the caller’s', () => {
    const env = launch(['id', '-u'], {
      HOME: '/home/user',
      TOKEN: 'x',
      TERM: 'xterm',
      LC_ALL: 'de',
      PATH: '/evil',
    });
    expect(env.env).toEqual({
      PATH: '/safe',
      LANG: 'C.UTF-8',
      TERM: 'xterm',
      LC_ALL: 'de',
      HOME: '/root',
      USER: 'root',
      LOGNAME: 'root',
      SHELL: '/bin/zsh',
      SUDO_COMMAND: 'id -u',
      SUDO_USER: 'user',
      SUDO_UID: '1000',
      SUDO_GID: '1000',
      TORPOR_SANDBOX: 'sbx_1',
    });
  });

  it('is the caller’s with -E, except for variables that load libraries or run scripts', () => {
    const { env } = launch(['-E', 'env'], {
      HOME: '/home/user',
      TOKEN: 'x',
      LD_PRELOAD: '/x.so',
      BASH_ENV: '/x',
      PATH: '/evil',
    });
    expect(env).toMatchObject({ TOKEN: 'x', HOME: '/home/user', PATH: '/safe' });
    expect(env).not.toHaveProperty('LD_PRELOAD');
    expect(env).not.toHaveProperty('BASH_ENV');
    expect(launch(['-E', '-H', 'env'], { HOME: '/home/user' }).env['HOME']).toBe('/root');
  });

  it('has the preserved variables and the assigned ones', () => {
    const { env } = launch(['--preserve-env=TOKEN', 'A=1', 'PATH=/mine', 'env'], { TOKEN: 'x', OTHER: 'y' });
    expect(env).toMatchObject({ TOKEN: 'x', A: '1', PATH: '/mine' });
    expect(env).not.toHaveProperty('OTHER');
  });

  it('always has the sandbox variable', () => {
    expect(launch(['TORPOR_SANDBOX=sbx_2', 'env']).env['TORPOR_SANDBOX']).toBe('sbx_1');
  });
});

describe('the command line', () => {
  const line = (args: string[], env: Record<string, string> = {}) => {
    const { command, args: rest } = launch(args, env);
    return [command, ...rest];
  };

  it('is the requested one', () => {
    expect(line(['ls', '-l', 'a b'])).toEqual(['ls', '-l', 'a b']);
  });

  it('uses the shell of the caller with -s and of the target user with -i', () => {
    expect(line(['-s'], { SHELL: '/bin/fish' })).toEqual(['/bin/fish']);
    expect(line(['-s'])).toEqual(['/bin/zsh']);
    expect(line(['-i'], { SHELL: '/bin/fish' })).toEqual(['/bin/zsh', '-l']);
    expect(launch(['-i']).cwd).toBe('/root');
    expect(launch(['-s']).cwd).toBe('/home/user/project');
    expect(launch(['-D', '/tmp', '-i']).cwd).toBe('/tmp');
  });

  it('quotes each word for a shell, except for variables', () => {
    expect(line(['-i', 'echo', 'a b', '$HOME', "it's", 'x;y', ''])).toEqual([
      '/bin/zsh',
      '-l',
      '-c',
      "echo a\\ b $HOME it\\'s x\\;y ''",
    ]);
  });
});

describe('a request', () => {
  const { command } = parseSudo(['-E', '-g', 'staff', 'id']) as { readonly command: Command };
  const request = { command, directory: '/', env: { A: '1' }, pid: 7, terminal: { cols: 80, rows: 24 } };

  it('is read as the program sends it', () => {
    expect(parseSudoRequest(JSON.stringify(request))).toEqual(request);
    const piped = { ...request, terminal: null };
    expect(parseSudoRequest(JSON.stringify(piped))).toEqual(piped);
  });

  it.each([
    null,
    [],
    {},
    { ...request, command: undefined },
    { ...request, command: { ...command, words: ['id', 7] } },
    { ...request, command: { ...command, shell: 'any' } },
    { ...request, env: { A: 1 } },
    { ...request, pid: '7' },
    { ...request, terminal: { cols: '80', rows: 24 } },
  ])('is refused when it is malformed: %j', (malformed) => {
    expect(() => parseSudoRequest(JSON.stringify(malformed))).toThrow('the request is malformed');
  });
});
