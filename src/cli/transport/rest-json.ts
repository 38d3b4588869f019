/** Messages as REST JSON, written by the same writer as the daemon's REST answers. */
import type { DescMessage, MessageShape } from "@bufbuild/protobuf";
import { JsonWriter } from "../../rest/json-writer.ts";
import type { RestShape } from "./rest-shape.ts";

export function messageToRest<Desc extends DescMessage>(
  type: Desc,
  message: MessageShape<Desc>,
): RestShape<MessageShape<Desc>> {
  const text = new JsonWriter().message(type, message);
  return JSON.parse(text) as RestShape<MessageShape<Desc>>;
}
