/**
 * What comes on a connection of HTTP/1.1 reaches node's parser in turns of its user, and one request at a time (T 57). Left to
 * itself node parses all that has come: 1,800 requests of one read, of each of a thousand connections, before anybody else.
 * Who sends more than is answered waits, with what was not read, in the kernel.
 */
import type { FairTurns } from "../lib/fair-turns.ts";
import { giveBack } from "../lib/give-back.ts";
import type { Connection } from "./connection.ts";

/** Ends a head. In a body of no declared size it costs no more than a pause. */
const headEnd = Buffer.from("\r\n\r\n");
/** Most that is parsed in one turn. Of a body it is all that has come: to hand it on takes no longer than a small piece. */
const maxPieceBytes = 16 * 1024;

/** Takes over from the server of node's, which has got the connection already. */
export function parseInTurns(connection: Connection, turns: FairTurns): void {
  const { socket } = connection;
  const [parse] = socket.listeners("data") as ((piece: Buffer) => void)[];
  if (parse === undefined) throw new Error("nobody reads the connection");
  /** What has just come, until it is parsed or kept. */
  let arrived: Buffer | undefined;
  /** Whether the socket keeps what must wait, and reads no more until that is parsed. */
  let isKept = false;
  /** Whether what was kept is asked for, to be parsed now. */
  let isTaking = false;
  let isOver = false;

  const receive = (bytes: Buffer): void => {
    arrived = bytes;
    if (isTaking) return;
    next();
    keepRest();
  };
  const keepRest = (): void => {
    if (arrived === undefined) return;
    isKept = true;
    socket.pause();
    socket.unshift(arrived);
    arrived = undefined;
  };
  const next = (): void => {
    if (connection.awaitsTurn || isOver || socket.destroyed) return;
    if ((arrived === undefined && !isKept) || !connection.isReadyForMore) return;
    if (connection.share.kind === "unknown") {
      // Who it is stands in what it sends: by its turn among all who have not said so it would have lost its place.
      parsePiece();
    } else {
      connection.awaitsTurn = true;
      turns.run(connection.share.name, parseInTurn);
    }
  };
  const parseInTurn = (): void => {
    connection.awaitsTurn = false;
    connection.isInTurn = true;
    parsePiece();
    connection.isInTurn = false;
    next();
  };
  const parsePiece = (): void => {
    // Node's parser is another connection's by now: what were parsed then would be that one's next request.
    if (isOver || socket.destroyed) return;
    const bytes = take();
    if (bytes === undefined) return;
    const isBody = connection.bodyLeftBytes > 0;
    const size = sizeOfPiece(bytes);
    if (size < bytes.length) {
      arrived = bytes.subarray(size);
      keepRest();
    }
    parse(size < bytes.length ? bytes.subarray(0, size) : bytes);
    // The parser has copied the body.
    if (isBody && size === bytes.length) giveBack(bytes);
    if (!connection.isInTurn) next();
  };
  const take = (): Buffer | undefined => {
    if (arrived === undefined && isKept) {
      isKept = false;
      isTaking = true;
      // Comes as "data", as all does. Before it is parsed, as what node wants then stands.
      socket.read();
      socket.resume();
      isTaking = false;
    }
    const bytes = arrived;
    arrived = undefined;
    return bytes;
  };
  const sizeOfPiece = (bytes: Buffer): number => {
    const { bodyLeftBytes } = connection;
    if (bodyLeftBytes === 0) {
      const end = bytes.indexOf(headEnd);
      return Math.min(end < 0 ? bytes.length : end + headEnd.length, maxPieceBytes);
    }
    const size = Math.min(bytes.length, bodyLeftBytes);
    connection.bodyLeftBytes -= size;
    return size;
  };
  // Node says with "resume" that it wants more, and a full answer or body is followed by "drain" or by "resume".
  socket.on("data", receive).on("resume", next).on("drain", next).off("data", parse);
  connection.onEnd = next;
  connection.onHold = () => {
    isOver = true;
    socket.off("data", receive).off("resume", next).off("drain", next);
  };
  socket.resume();
}
