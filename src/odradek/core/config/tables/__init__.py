"""The facts: every config by subject, as text that ``definition`` reads."""
