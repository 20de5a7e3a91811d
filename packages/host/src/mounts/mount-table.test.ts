import { optionsFor, stackOf } from '@torpor/layers';
import { describe, expect, it } from 'vitest';
import { parseMounts } from './mount-table.ts';

const LINE =
  '49 27 0:47 / /data/with\\040space rw,nosuid shared:1 master:2 - overlay overlay rw,lowerdir=lay_bbbbbbbbbbbbbbbbbbbb/fs:lay_cccccccccccccccccccc/fs,upperdir=lay_aaaaaaaaaaaaaaaaaaaa/fs,workdir=lay_aaaaaaaaaaaaaaaaaaaa/work,redirect_dir=on\n';

describe('the mount table', () => {
  it('unescapes paths, whatever optional fields a line has', () => {
    const [mount] = parseMounts(LINE);
    expect(mount).toMatchObject({ at: '/data/with space', root: '/', type: 'overlay', isShared: true });
    expect(mount?.flags).toEqual(new Set(['rw', 'nosuid']));
    expect(mount?.options.get('redirect_dir')).toBe('on');
  });

  it('takes a line without optional fields for a private mount', () => {
    const [mount] = parseMounts('50 27 0:48 /sub /m ro - ext4 /dev/sda1 rw\n');
    expect(mount).toMatchObject({ at: '/m', root: '/sub', type: 'ext4', isShared: false });
  });

  it('shows the stacks of layers among the overlays', () => {
    const [mount] = parseMounts(LINE);
    expect(mount && stackOf(mount)).toEqual({
      at: '/data/with space',
      upper: 'lay_aaaaaaaaaaaaaaaaaaaa',
      lower: ['lay_bbbbbbbbbbbbbbbbbbbb', 'lay_cccccccccccccccccccc'],
    });
  });

  it('does not take the overlay of another program for a stack of layers', () => {
    const other = '50 27 0:48 / /m rw - overlay overlay rw,lowerdir=/var/lib/x/l,upperdir=/var/lib/x/u\n';
    const [mount] = parseMounts(other);
    expect(mount && stackOf(mount)).toBeUndefined();
  });
});

describe('the options of an overlay mount', () => {
  it('require a lower layer', () => {
    expect(() => optionsFor([], 'lay_aaaaaaaaaaaaaaaaaaaa')).toThrow('A stack of 0 layers');
  });
});
