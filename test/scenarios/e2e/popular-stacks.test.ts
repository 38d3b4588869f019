/** The stacks that most people bring first. */
import { testStacks } from "../../support/stack-life.ts";
import { popularStacks } from "../../support/popular-stacks.ts";

testStacks(popularStacks);
