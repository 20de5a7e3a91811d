/** The limitations of the process runtime, for the start-up message and the documentation. */
export const PROCESS_LIMITS: readonly string[] = [
  'The process runtime does not isolate: what runs in a sandbox can reach the host, its network and, unless the server runs as root, everything the server’s own user can reach.',
  'Use it for code you trust, and only on a loopback address.',
  'A pause keeps the files of the workspace, not the processes: a resume starts the declared services again and says that processes were lost.',
  'Only the workspace (the home directory of the sandbox) is kept; files written elsewhere on the host are neither kept nor removed.',
  'Sandboxes share the ports of the host: a service must listen on the port in PORT, to which its declared port is mapped, or two sandboxes get into each other’s way.',
  'Limits on memory, processors, processes and disk are not enforced; restrictions of the network are refused.',
  'Without root, a process that leaves its parent and its session and also clears its environment is not found again, neither to stop nor to end it.',
  'On macOS processes are found by their parents and process groups only, so that a daemon that left both stays behind.',
];
