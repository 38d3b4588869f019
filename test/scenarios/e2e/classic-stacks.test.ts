/** Stacks with Debian's docker-compose 1.29. */
import { furtherStacks } from "../../support/further-stacks.ts";
import { largeStacks } from "../../support/large-stacks.ts";
import { popularStacks } from "../../support/popular-stacks.ts";
import { rootStacks } from "../../support/root-stacks.ts";
import { testClassicStacks } from "../../support/stack-life.ts";

testClassicStacks([...popularStacks, ...furtherStacks, ...rootStacks, ...largeStacks]);
