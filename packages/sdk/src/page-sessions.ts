/** Sign-in at the page that the server has for people. Programs need only `link`; the page itself uses the others. */
import {
  type PageLink,
  type PageLinkRequest,
  pageLinkSchema,
  type SignedIn,
  type SignInRequest,
  signedInSchema,
} from '@torpor/protocol';
import type { CallOptions, JsonCalls } from './json-calls.ts';

export class PageSessions {
  readonly #calls: JsonCalls;

  constructor(calls: JsonCalls) {
    this.#calls = calls;
  }

  /** A link that signs one browser in, once, with the key of this client. */
  link(request: PageLinkRequest = {}, options: CallOptions = {}): Promise<PageLink> {
    return this.#calls.post('/v1/page/links', pageLinkSchema, request, options);
  }

  /** Signs this browser in. The token is the `apiKey` of a client in this browser, and works in no other. */
  signIn(request: SignInRequest, options: CallOptions = {}): Promise<SignedIn> {
    return this.#calls.post('/v1/page/session', signedInSchema, request, options);
  }

  async signOut(options: CallOptions = {}): Promise<void> {
    await this.#calls.delete('/v1/page/session', options);
  }
}
