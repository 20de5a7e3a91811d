export {
  type CertificateParts,
  type CertificateWithKey,
  commonName,
  createAuthority,
  endOf,
  issueCertificate,
  subjectHash,
} from './certificate.ts';
export { type PairFiles, pairFiles, readPair, writePair } from './certificate-pair.ts';
