/** Credentials for a registry. A password on the command line would be visible to other users of the machine. */
import { text } from 'node:stream/consumers';
import type { Cli } from './cli.ts';
import { CliError } from './failure.ts';

export interface RegistryOptions {
  readonly registryUser?: string;
  readonly registryPasswordStdin?: boolean;
}

export async function registryCredentials(
  { io }: Cli,
  { registryUser: username, registryPasswordStdin }: RegistryOptions,
): Promise<{ username: string; password: string } | undefined> {
  if ((username === undefined) === (registryPasswordStdin === true))
    throw new CliError('INVALID_ARGUMENT', '--registry-user and --registry-password-stdin belong together.');
  if (username === undefined) return undefined;
  return { username, password: (await text(io.stdin)).replace(/\r?\n$/, '') };
}
