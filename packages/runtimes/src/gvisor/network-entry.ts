/**
 * How runsc gets into the network namespace of a sandbox.
 *
 * runsc joins the namespace that the OCI spec names by itself, but before it takes the addresses over it
 * refuses to do so in the machine's first namespace, which it recognises by /proc/sys/net/core/rmem_default.
 * Newer kernels show that file in every namespace. So those of its commands that set up the network (start,
 * run and restore, not create) run where it is hidden: in the network namespace, because that directory is
 * one of its own in each, and in a mount namespace of their own, so that only they do not see it.
 */

/** What is said to the shell is fixed; names come as its arguments. */
const HIDE = 'mount -t tmpfs -o size=4k torpor /proc/sys/net/core && exec "$@"';

/**
 * The command that runs `command` in the network namespace at a path.
 *
 * Each step is replaced by the next, so that its process id is the one to kill. The mount namespace is a
 * slave of the machine's: what is unmounted there is unmounted in it too, where `shareMounts` has seen to
 * that. Nothing that runsc leaves running stays in it: the sentry and the gofer go on to roots of their own.
 */
export function inNetworkNamespace(
  netnsPath: string,
  command: readonly string[],
): readonly [string, ...string[]] {
  const unshare = ['unshare', '--mount', '--propagation', 'slave'];
  return ['nsenter', `--net=${netnsPath}`, ...unshare, 'sh', '-c', HIDE, 'sh', ...command];
}
