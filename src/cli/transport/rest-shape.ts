/** Types of the REST JSON of generated messages, so that a command is checked against the contract without loading it. */
import type { JsonObject, JsonValue, Message } from "@bufbuild/protobuf";
import type { Timestamp, Value } from "@bufbuild/protobuf/wkt";

export type { JsonObject, JsonValue as Json };

/** `ownerUid` → `owner_uid`: how the application and daemon services name their fields (D3). */
type SnakeCase<Name extends string> = Name extends `${infer Head}${infer Tail}`
  ? `${Head extends Lowercase<Head> ? Head : `_${Lowercase<Head>}`}${SnakeCase<Tail>}`
  : Name;

/** The REST JSON of a message: instants as RFC 3339 strings, 64-bit integers as numbers, names in snake case. */
export type RestShape<T> = T extends bigint
  ? number
  : T extends Timestamp
    ? string
    : T extends Value
      ? JsonValue
      : T extends readonly (infer Item)[]
        ? readonly RestShape<Item>[]
        : T extends Message
          ? {
              readonly [
                Key in keyof T as Key extends `$${string}` ? never : SnakeCase<Key & string>
              ]: RestShape<T[Key]>;
            }
          : T;
