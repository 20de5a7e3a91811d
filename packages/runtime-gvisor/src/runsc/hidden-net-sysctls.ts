/**
 * Hides /proc/sys/net from the runsc commands that set up the network of a sandbox (start, run and restore, not create).
 *
 * runsc joins the network namespace that the OCI spec names. Before it takes over the addresses, it refuses to do so in
 * the host's own network namespace, which it recognises by /proc/sys/net/core/rmem_default. Newer kernels show that file
 * in every namespace. So these commands run in a mount namespace of their own, in which a tmpfs covers the directory.
 *
 * That namespace is a slave of the one in which roots are mounted: mounts and unmounts there appear in it too, below
 * directories that `shareMounts` has shared. No process stays in it: sentry and gofer change to roots of their own.
 */
import { Launcher } from '@torpor/host';

/** The script is constant; names are passed as arguments. */
const HIDE = 'mount -t tmpfs -o size=4k torpor /proc/sys/net && exec "$@"';

/**
 * The namespace is made by the first command of this launcher; the directory of roots must be shared before. `entry` is
 * the command that enters the namespace in which roots are mounted.
 */
export function withHiddenNetSysctls(entry: readonly string[]): Launcher {
  return new Launcher([...entry, 'unshare', '--mount', '--propagation', 'slave', 'sh', '-c', HIDE, 'sh']);
}
