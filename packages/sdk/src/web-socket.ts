/** The part of a standard WebSocket that the SDK uses, so that any implementation can be given. */
export interface StandardSocket {
  binaryType: string;
  readonly readyState: number;
  readonly bufferedAmount: number;
  /** Typed arrays are accepted too; their types differ between Node and browsers. */
  send(data: string | ArrayBuffer): void;
  close(code?: number): void;
  addEventListener(type: string, listener: (event: object) => void, options?: { once?: boolean }): void;
}

export type StandardSocketClass = new (url: string | URL, protocols?: string[]) => StandardSocket;
