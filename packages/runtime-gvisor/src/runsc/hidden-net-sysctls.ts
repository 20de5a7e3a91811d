/**
 * Where runsc sets up the network of a sandbox.
 *
 * runsc joins the namespace that the OCI spec names by itself, but before it takes the addresses over it refuses to do
 * so in the machine's first namespace, which it recognises by /proc/sys/net/core/rmem_default. Newer kernels show that
 * file in every namespace. So those of its commands that set up the network (start, run and restore, not create) run
 * where it is hidden: in a mount namespace of their own, in which that directory is covered.
 *
 * The namespace is a slave of the one in which roots are mounted: what is mounted and unmounted there is so in it too, where `shareMounts`
 * has seen to that. Nothing that runsc leaves running stays in it: the sentry and the gofer go on to roots of their own.
 */
import { Launcher } from '@torpor/host';

/** What is said to the shell is fixed; names come as its arguments. */
const HIDE = 'mount -t tmpfs -o size=4k torpor /proc/sys/net && exec "$@"';

/** Opened by its first order: what is to be seen there must be shared by then. `entry` leads to where roots are mounted. */
export function withHiddenNetSysctls(entry: readonly string[]): Launcher {
  return new Launcher([...entry, 'unshare', '--mount', '--propagation', 'slave', 'sh', '-c', HIDE, 'sh']);
}
