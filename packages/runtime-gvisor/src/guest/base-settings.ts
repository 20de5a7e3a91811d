/** The files that Torpor writes under /etc and in the user's home of `base`. None comes from the host. */
import { GUEST_HOME, GUEST_PATH } from './layout.ts';

/** Settings of `base` whether its root is its own or the host's, by path in the guest. */
export const COMMON_SETTINGS: Readonly<Record<string, string>> = {
  '/etc/timezone': 'Etc/UTC\n',
  '/etc/default/locale': 'LANG=C.UTF-8\n',
  // Without this pip refuses to install beside Debian's packages.
  '/etc/pip.conf': '[global]\nbreak-system-packages = true\n',
};

/** Further settings where the root is the host's. The comments inside are for the users of a guest. */
export const HOST_VIEW_SETTINGS: Readonly<Record<string, string>> = {
  '/etc/nsswitch.conf': `passwd: files
group: files
shadow: files
hosts: files dns
networks: files
protocols: files
services: files
ethers: files
rpc: files
`,
  '/etc/environment': `PATH="${GUEST_PATH}"\n`,
  '/etc/profile': `# For login shells. The PATH that a shell was given stays.
: "\${PATH:=${GUEST_PATH}}"
for script in /etc/profile.d/*.sh; do
  [ -r "$script" ] && . "$script"
done
unset script
export PATH
if [ -n "\${BASH-}" ] && [ -r /etc/bash.bashrc ]; then . /etc/bash.bashrc; fi
`,
  '/etc/bash.bashrc': `# For interactive shells.
case $- in *i*) ;; *) return ;; esac
shopt -s checkwinsize histappend
PS1='\\u@\\h:\\w\\$ '
if [ -r /usr/share/bash-completion/bash_completion ]; then . /usr/share/bash-completion/bash_completion; fi
`,
  '/etc/pam.d/su': pamFor('sufficient pam_rootok.so'),
  '/etc/pam.d/su-l': pamFor('sufficient pam_rootok.so'),
  '/etc/pam.d/runuser': pamFor('sufficient pam_rootok.so'),
  '/etc/pam.d/runuser-l': pamFor('sufficient pam_rootok.so'),
  '/etc/pam.d/other': pamFor('required pam_deny.so'),
  '/etc/default/useradd': 'SHELL=/bin/bash\n',
};

function pamFor(rule: string): string {
  return `auth ${rule}\naccount required pam_permit.so\nsession required pam_permit.so\n`;
}

/** By name in the home of a new user. */
export const HOME_SETTINGS: Readonly<Record<string, string>> = {
  '.profile': `PATH="$HOME/bin:$HOME/.local/bin:$PATH"
if [ -n "\${BASH-}" ] && [ -r "$HOME/.bashrc" ]; then . "$HOME/.bashrc"; fi
`,
  '.bashrc': `case $- in *i*) ;; *) return ;; esac
HISTSIZE=10000
HISTFILESIZE=20000
alias ls='ls --color=auto'
alias ll='ls -l'
alias grep='grep --color=auto'
`,
  '.npmrc': `prefix=${GUEST_HOME}/.local\n`,
};
