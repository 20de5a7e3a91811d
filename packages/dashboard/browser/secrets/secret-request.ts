/** The form of a secret as text, and the request that it means. */
import type { SecretView, SetSecretRequest } from '@torpor/sdk';
import { given, textIn, wordsIn } from '../ui/form-values.ts';

export interface SecretDraft {
  readonly name: string;
  readonly host: string;
  readonly header: string;
  /** Stands before the value; a space at its end counts. */
  readonly prefix: string;
  readonly value: string;
  readonly methods: string;
  readonly path: string;
}

/** What most APIs want. */
export const EMPTY_SECRET: SecretDraft = {
  name: '',
  host: '',
  header: 'Authorization',
  prefix: 'Bearer ',
  value: '',
  methods: '',
  path: '',
};

export function secretRequestOf(draft: SecretDraft): SetSecretRequest {
  const methods = wordsIn(draft.methods.toUpperCase());
  return {
    host: draft.host.trim(),
    header: draft.header.trim(),
    // A value that was pasted often ends with a line break or a space.
    value: draft.value.trim(),
    ...given({
      prefix: draft.prefix === '' ? undefined : draft.prefix,
      methods: methods.length === 0 ? undefined : methods,
      path: textIn(draft.path),
    }),
  };
}

/** The form for a new value of a secret. The server never returns the present value. */
export function draftOfSecret({ name, host, header, prefix, methods, path }: SecretView): SecretDraft {
  return {
    name,
    host,
    header,
    prefix: prefix ?? '',
    value: '',
    methods: (methods ?? []).join(', '),
    path: path ?? '',
  };
}

/** Which requests get the secret. */
export function requestsText({ methods, path }: SecretView): string {
  return [methods?.join(', '), path].filter((part) => part != null).join(' ') || 'all';
}
