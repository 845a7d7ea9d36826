"""Rewards that are verified, not learned."""
