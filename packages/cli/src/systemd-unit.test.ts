import { describe, expect, it } from 'vitest';
import { systemdUnit } from './systemd-unit.ts';

const parts = {
  node: '/usr/bin/node',
  program: '/opt/torpor/bin/torpor.mjs',
  dataDir: '/var/lib/torpor',
  envFile: '/e',
};

describe('the systemd unit', () => {
  it('starts this torpor with its data directory, and leaves sandboxes running when it stops', () => {
    const unit = systemdUnit(parts);
    expect(unit).toContain('\nExecStart=/usr/bin/node /opt/torpor/bin/torpor.mjs up\n');
    expect(unit).toContain('\nEnvironment=TORPOR_DATA_DIR=/var/lib/torpor\n');
    expect(unit).toContain('\nWorkingDirectory=-/var/lib/torpor\n');
    expect(unit).toContain('\nKillMode=process\n');
    expect(unit).not.toMatch(/^(PrivateTmp|ProtectSystem)=/m);
  });

  it('quotes paths with spaces and characters of systemd', () => {
    const unit = systemdUnit({ ...parts, program: '/my 100% "x"/$HOME/torpor.mjs' });
    expect(unit).toContain('ExecStart=/usr/bin/node "/my 100%% \\"x\\"/$$HOME/torpor.mjs" up\n');
  });
});
