/** The certificates, keys and kubeconfigs of a lab cluster. */
import { execFileSync } from 'node:child_process';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';

export interface LabKeys {
  readonly directory: string;
  /** Writes a certificate that the authority of the lab signs. */
  certificate(name: string, subject: string, names?: string): void;
  /** Writes a kubeconfig and returns its path. */
  kubeconfig(name: string, server: string, user: object): string;
}

export function makeLabKeys(directory: string): LabKeys {
  const openssl = (...args: string[]) => execFileSync('openssl', args, { cwd: directory, stdio: 'pipe' });
  const key = (name: string) =>
    openssl('ecparam', '-name', 'prime256v1', '-genkey', '-noout', '-out', `${name}.key`);
  key('ca');
  openssl('req', '-x509', '-new', '-key', 'ca.key', '-subj', '/CN=lab-ca', '-days', '30', '-out', 'ca.crt');
  openssl('genrsa', '-out', 'sa.key', '2048');
  openssl('rsa', '-in', 'sa.key', '-pubout', '-out', 'sa.pub');
  return {
    directory,
    certificate(name, subject, names) {
      key(name);
      openssl('req', '-new', '-key', `${name}.key`, '-subj', subject, '-out', `${name}.csr`);
      const lines = [
        'basicConstraints=CA:FALSE',
        'keyUsage=digitalSignature',
        'extendedKeyUsage=serverAuth,clientAuth',
      ];
      if (names !== undefined) lines.push(`subjectAltName=${names}`);
      writeFileSync(join(directory, `${name}.ext`), `${lines.join('\n')}\n`);
      const signing = ['-CA', 'ca.crt', '-CAkey', 'ca.key', '-CAcreateserial', '-days', '30'];
      openssl(
        'x509',
        '-req',
        '-in',
        `${name}.csr`,
        ...signing,
        '-extfile',
        `${name}.ext`,
        '-out',
        `${name}.crt`,
      );
    },
    kubeconfig(name, server, user) {
      const path = join(directory, `${name}.kubeconfig`);
      const config = {
        apiVersion: 'v1',
        kind: 'Config',
        clusters: [{ name: 'c', cluster: { server, 'certificate-authority': join(directory, 'ca.crt') } }],
        users: [{ name: 'u', user }],
        contexts: [{ name: 'x', context: { cluster: 'c', user: 'u' } }],
        'current-context': 'x',
      };
      writeFileSync(path, JSON.stringify(config), { mode: 0o600 });
      return path;
    },
  };
}
