import { optionsFor, stackOf } from '@torpor/layers';
import { describe, expect, it } from 'vitest';
import { parseMounts } from './mount-table.ts';

const LINE =
  '49 27 0:47 / /data/with\\040space rw,nosuid shared:1 master:2 - overlay overlay rw,lowerdir=lay_bbbbbbbbbbbbbbbbbbbb/fs:lay_cccccccccccccccccccc/fs,upperdir=lay_aaaaaaaaaaaaaaaaaaaa/fs,workdir=lay_aaaaaaaaaaaaaaaaaaaa/work,redirect_dir=on\n';

describe('the table of mounts', () => {
  it('is read with what escapes stand for, whatever optional fields a line has', () => {
    const [mount] = parseMounts(LINE);
    expect(mount).toMatchObject({ at: '/data/with space', type: 'overlay' });
    expect(mount?.options.get('redirect_dir')).toBe('on');
  });

  it('shows the stacks of layers among the overlays', () => {
    const [mount] = parseMounts(LINE);
    expect(mount && stackOf(mount)).toEqual({
      at: '/data/with space',
      upper: 'lay_aaaaaaaaaaaaaaaaaaaa',
      lower: ['lay_bbbbbbbbbbbbbbbbbbbb', 'lay_cccccccccccccccccccc'],
    });
  });

  it('does not take the overlays of others for stacks of layers', () => {
    const others = '50 27 0:48 / /m rw - overlay overlay rw,lowerdir=/var/lib/x/l,upperdir=/var/lib/x/u\n';
    const [mount] = parseMounts(others);
    expect(mount && stackOf(mount)).toBeUndefined();
  });
});

describe('the options of a mount', () => {
  it('are refused without a layer below', () => {
    expect(() => optionsFor([], 'lay_aaaaaaaaaaaaaaaaaaaa')).toThrow('A stack of 0 layers');
  });
});
