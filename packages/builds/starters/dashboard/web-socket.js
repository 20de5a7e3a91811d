/** The server's end of a WebSocket (RFC 6455), as far as a dashboard needs it: text out, close and ping in. */
import { createHash } from 'node:crypto';

const MAGIC = '258EAFA5-E914-47DA-95CA-C5AB0DC85B11';
const MAX_FRAME = 65_536;

/** Accepts the upgrade. Returns ways to send and to hear that it is over. */
export function acceptWebSocket(request, socket, onClose) {
  const key = request.headers['sec-websocket-key'];
  if (typeof key !== 'string') {
    socket.end('HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n');
    return undefined;
  }
  const accept = createHash('sha1')
    .update(key + MAGIC)
    .digest('base64');
  socket.write(
    `HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: ${accept}\r\n\r\n`,
  );
  let waiting = Buffer.alloc(0);
  socket.on('error', () => socket.destroy());
  socket.on('close', onClose);
  socket.on('data', (bytes) => {
    waiting = Buffer.concat([waiting, bytes]);
    for (let frame = readFrame(waiting); frame !== undefined; frame = readFrame(waiting)) {
      if (frame === 'wrong') return socket.destroy();
      waiting = waiting.subarray(frame.size);
      if (frame.opcode === 0x8) return socket.end(writeFrame(0x8, frame.payload));
      if (frame.opcode === 0x9) socket.write(writeFrame(0xa, frame.payload));
    }
  });
  return { send: (text) => socket.writable && socket.write(writeFrame(0x1, Buffer.from(text))) };
}

/** Undefined when it has not arrived whole. Frames of clients are always masked. */
function readFrame(bytes) {
  if (bytes.length < 2) return undefined;
  const masked = (bytes[1] & 0x80) !== 0;
  const short = bytes[1] & 0x7f;
  if (!masked || short === 127) return 'wrong';
  const head = short === 126 ? 4 : 2;
  if (bytes.length < head + 4) return undefined;
  const length = short === 126 ? bytes.readUInt16BE(2) : short;
  if (length > MAX_FRAME) return 'wrong';
  const size = head + 4 + length;
  if (bytes.length < size) return undefined;
  const mask = bytes.subarray(head, head + 4);
  const payload = Buffer.from(bytes.subarray(head + 4, size).map((byte, at) => byte ^ mask[at % 4]));
  return { opcode: bytes[0] & 0x0f, payload, size };
}

function writeFrame(opcode, payload) {
  const { length } = payload;
  const head = length < 126 ? Buffer.from([0x80 | opcode, length]) : Buffer.alloc(4);
  if (length >= 126) {
    head[0] = 0x80 | opcode;
    head[1] = 126;
    head.writeUInt16BE(Math.min(length, 65_535), 2);
  }
  return Buffer.concat([head, payload.subarray(0, 65_535)]);
}
