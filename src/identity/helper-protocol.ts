/**
 * What a helper can be asked for, and what it answers, from its own table of operations: both ends are checked against that.
 * What comes back is a claim, as the helper is its user's: its fields are known, and nothing of what is in them.
 */
import type { operations } from "./helper/requests.mjs";

type Operations = typeof operations;

export type Op = keyof Operations;

/** The arguments of an operation, as they are sent. */
export type ArgsOf<O extends Op> = Sent<Parameters<Operations[O]>[0]>;

/** JSON leaves out what is undefined. */
type Sent<T> = T extends readonly (infer Item)[]
  ? readonly Sent<Item>[]
  : T extends object
    ? { readonly [K in keyof T]: object extends Pick<T, K> ? Sent<T[K]> | undefined : Sent<T[K]> }
    : T;

/** What an operation claims to have come to. */
export type ClaimOf<O extends Op> = Claim<ValueIn<Awaited<ReturnType<Operations[O]>>>>;

type ValueIn<Answer> = Answer extends { value: infer Value } ? Value : undefined;

type Claim<Value> = Value extends readonly unknown[]
  ? unknown
  : Value extends object
    ? { readonly [K in keyof Value]?: unknown }
    : Value extends null | undefined
      ? Value
      : unknown;
