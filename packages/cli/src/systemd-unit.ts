/** The systemd unit of a server. */

export interface UnitOptions {
  readonly node: string;
  readonly program: string;
  readonly dataDir: string;
  readonly envFile: string;
}

/**
 * The unit has no mount namespace of its own (`PrivateTmp=`, `ProtectSystem=`): the server keeps its mounts in a namespace
 * that must survive a restart. `KillMode=process` lets sandboxes run on while the server is restarted.
 */
export function systemdUnit({ node, program, dataDir, envFile }: UnitOptions): string {
  return `[Unit]
Description=Torpor
After=network-online.target
Wants=network-online.target

[Service]
# Holds torpor.config.json, if there is one. The server makes the directory at its first start.
WorkingDirectory=-${dataDir}
Environment=${quoted(`TORPOR_DATA_DIR=${dataDir}`)}
EnvironmentFile=-${envFile}
ExecStart=${quoted(node)} ${quoted(program)} up
Restart=always
RestartSec=2
TimeoutStopSec=60
# Sandboxes outlive a restart of the server.
KillMode=process
Delegate=yes
LimitNOFILE=1048576
OOMScoreAdjust=-900

[Install]
WantedBy=multi-user.target
`;
}

/** As systemd reads it: in quotes, with its own characters escaped. */
function quoted(text: string): string {
  if (/^[\w@./:=+-]+$/.test(text)) return text;
  return `"${text.replace(/[\\"]/g, '\\$&').replaceAll('%', '%%').replaceAll('$', '$$$$')}"`;
}
