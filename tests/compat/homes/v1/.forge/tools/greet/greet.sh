echo "Hello ${1#--who=}"
