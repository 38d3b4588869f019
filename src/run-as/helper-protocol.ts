/**
 * The operations of a helper and their responses, typed by the helper's own table of operations, so that both ends are
 * checked against it. A response is a claim, because its user controls the helper: only the names of its fields are
 * known.
 */
import type { operations } from "./helper/requests.mjs";

type Operations = typeof operations;

export type Op = keyof Operations;

/** The arguments of an operation as sent. */
export type ArgsOf<O extends Op> = Sent<Parameters<Operations[O]>[0]>;

/** JSON omits undefined fields. */
type Sent<T> = T extends readonly (infer Item)[]
  ? readonly Sent<Item>[]
  : T extends object
    ? { readonly [K in keyof T]: object extends Pick<T, K> ? Sent<T[K]> | undefined : Sent<T[K]> }
    : T;

/** The unchecked result of an operation. */
export type ClaimOf<O extends Op> = Claim<ValueIn<Awaited<ReturnType<Operations[O]>>>>;

type ValueIn<Answer> = Answer extends { value: infer Value } ? Value : undefined;

type Claim<Value> = Value extends readonly unknown[]
  ? unknown
  : Value extends object
    ? { readonly [K in keyof Value]?: unknown }
    : Value extends null | undefined
      ? Value
      : unknown;
