/** As much of a WebSocket as is used here, so that any that is made to the standard will do. */
export interface StandardSocket {
  binaryType: string;
  readonly readyState: number;
  readonly bufferedAmount: number;
  /** Views too; their types differ too much between the worlds that this is compiled in. */
  send(data: string | ArrayBuffer): void;
  close(code?: number): void;
  addEventListener(type: string, listener: (event: object) => void, options?: { once?: boolean }): void;
}

export type StandardSocketClass = new (url: string | URL, protocols?: string[]) => StandardSocket;
