/** Types of the REST JSON of generated messages: they check commands against the contract without loading it. */
import type { JsonObject, JsonValue, Message } from "@bufbuild/protobuf";
import type { Timestamp, Value } from "@bufbuild/protobuf/wkt";

export type { JsonObject, JsonValue as Json };

/** How a service names its fields: in snake case, except for the docker, process and monitor services. */
export type Naming = "snake" | "camel";

/** `ownerUid` → `owner_uid`. */
type SnakeCase<Name extends string> = Name extends `${infer Head}${infer Tail}`
  ? `${Head extends Lowercase<Head> ? Head : `_${Lowercase<Head>}`}${SnakeCase<Tail>}`
  : Name;

type Named<Name extends string, Style extends Naming> = Style extends "snake" ? SnakeCase<Name> : Name;

/** A oneof in the generated types. */
type Oneof = { readonly case: string | undefined };

type FieldsOf<T extends Message, Style extends Naming> = {
  readonly [
    Key in keyof T as Key extends `$${string}`
      ? never
      : T[Key] extends Oneof
        ? never
        : Named<Key & string, Style>
  ]: RestShape<T[Key], Style>;
};

/** In JSON the members of a oneof are ordinary fields. */
type OneofMembersOf<T extends Message, Style extends Naming> = {
  readonly [
    Member in Extract<T[keyof T], { case: string; value: unknown }> as Named<Member["case"], Style>
  ]?: RestShape<Member["value"], Style>;
};

/** The REST JSON of a message: instants as RFC 3339 strings, 64-bit integers as numbers. */
export type RestShape<T, Style extends Naming = "snake"> = T extends bigint
  ? number
  : T extends Timestamp
    ? string
    : T extends Value
      ? JsonValue
      : T extends readonly (infer Item)[]
        ? readonly RestShape<Item, Style>[]
        : T extends Message
          ? FieldsOf<T, Style> & OneofMembersOf<T, Style>
          : T;
