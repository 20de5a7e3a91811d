import { describe, expect, it } from 'vitest';
import { librariesOf, parseLdd } from './shared-libraries.ts';

describe('the libraries of a program', () => {
  it('are those that the loader finds, and the loader', () => {
    const text = `	linux-vdso.so.1 (0x00007ffd5a5c9000)
	libstdc++.so.6 => /lib/x86_64-linux-gnu/libstdc++.so.6 (0x00007f5400000000)
	libc.so.6 => /lib/x86_64-linux-gnu/libc.so.6 (0x00007f521e000000)
	/lib64/ld-linux-x86-64.so.2 (0x00007f5783000000)
`;
    expect(parseLdd(text)).toEqual({
      loader: '/lib64/ld-linux-x86-64.so.2',
      libraries: ['/lib/x86_64-linux-gnu/libstdc++.so.6', '/lib/x86_64-linux-gnu/libc.so.6'],
    });
  });

  it('are reported when one is missing', () => {
    expect(() => parseLdd('	libmissing.so.1 => not found\n')).toThrow(/libmissing\.so\.1/);
  });

  it('are undefined for a static program', async () => {
    expect(parseLdd('	statically linked\n')).toBeUndefined();
    expect(await librariesOf('/etc/passwd')).toBeUndefined();
  });

  it('of the running Node exist on this host', async () => {
    const found = await librariesOf(process.execPath);
    expect(found?.loader).toMatch(/\/ld-/);
    expect(found?.libraries.some((path) => /libc[.-]/.test(path))).toBe(true);
  });
});
