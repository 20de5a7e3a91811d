/**
 * What the root of `base` consists of. A change here needs a new number in `RECIPE`.
 *
 * Plain JavaScript that runs on Node 20, because the setup of a clone reads it before anything is installed.
 */

/** The same recipe gives other contents on another day, because Debian's packages get updates. */
export const RECIPE = 1;

/** The release of Debian. */
export const SUITE = 'bookworm';

/** In addition to the essential packages. `sudo` is Torpor's own, which works with every runsc. */
export const PACKAGES = [
  'apt-utils',
  'build-essential',
  'ca-certificates',
  'curl',
  'file',
  'git',
  'iproute2',
  'iputils-ping',
  'jq',
  'less',
  'nano',
  'netbase',
  'openssh-client',
  'procps',
  'python-is-python3',
  'python3',
  'python3-pip',
  'python3-venv',
  'tzdata',
  'unzip',
  'vim-tiny',
  'wget',
  'xz-utils',
  'zip',
  'zstd',
];

/** Node is the server's own program: Debian's is too old for most web frameworks. */
export const NPM = {
  version: '11.19.1',
  integrity:
    'sha512-ztsxKxt/kkIaAs+2i0GU6I+DRmUdrNasxTZKJe9TCdSjKxlhah/4r/hl5ygMD6XAg1qZ9c2TNomR4qgOydp10g==',
};
